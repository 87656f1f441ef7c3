"""The engine: the only room that imports pyspark."""

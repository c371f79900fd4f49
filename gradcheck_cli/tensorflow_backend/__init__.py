"""The only package that imports TensorFlow. Features may see its files; its folders are its inside."""

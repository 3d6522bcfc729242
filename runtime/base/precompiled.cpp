// An object library needs a source. This one is empty: the library is there for its precompiled headers.

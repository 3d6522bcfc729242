#pragma once

namespace ferry {

/// Call first. A standard stream that is closed keeps its number, so that no file or connection takes it and gets what is
/// printed; using it goes on failing. (A library may have taken that of the standard input before main; nothing is read from
/// it.) A write beyond the limit of a file's size (ulimit -f) is an error and no longer the process's end.
void prepare_output();

/// For a process that others depend on: it outlives whoever read what it prints.
void outlive_readers();

/// Call when everything was printed to standard output: throws Error if any of it could not be written, now or earlier.
void finish_output();

}  // namespace ferry

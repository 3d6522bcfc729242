#pragma once

#include <string>

#include "runtime/options/options.h"

namespace CLI {
class App;
}

// What a command line that makes no sense gets to hear: one line each.

namespace ferry {

ParseResult refuse(const std::string& message);
/// Whether a command is missing, or another of its words, where one has to be.
bool lacks_command(const CLI::App& app);
/// A command line of which that is so.
ParseResult refuse_command(const CLI::App& app, int argc, const char* const* argv);
/// A value that is missing or given twice. `text` is CLI11's, which shows types and counts of its own.
ParseResult refuse_count(const std::string& text);
/// Returns whether there are arguments that no option of the command takes.
bool has_extras(const CLI::App& app);
/// Refuses them, and names the option that was meant if one is near. CLI11's own words do not show an empty one.
ParseResult refuse_extras(const CLI::App& app);

}  // namespace ferry

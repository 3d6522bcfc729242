#include "runtime/options/refusals.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace ferry {
namespace {

/// CLI11's words for a value that is missing or given twice, in ours: it shows types and counts of its own.
std::string reword(const std::string& text) {
  const std::string name = text.substr(0, text.find(": "));
  const std::size_t begin = text.find(":["), end = text.rfind(']');
  if (text.ends_with(" missing")) {
    const bool has_range = begin != std::string::npos && end != std::string::npos;
    return name + ": a value is missing" + (has_range ? "; allowed: " + text.substr(begin + 2, end - begin - 2) : "");
  }
  const std::size_t received = text.find(" required but received ");
  if (received == std::string::npos || name.size() + 2 > received) return text;
  const std::string given = text.substr(text.rfind(' ') + 1), bound = text.substr(name.size() + 2, received - name.size() - 2);
  if (bound.starts_with("At least ")) return name + ": " + given + " given; allowed: " + bound.substr(9) + " or more";
  const std::string most = bound.substr(bound.rfind(' ') + 1);
  if (most == "1") return name + ": given " + given + " times; allowed: once";
  return name + ": " + given + " given; allowed: at most " + most;
}

/// "a\nb" as one line: CLI11 joins several complaints by newlines.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

ParseResult refuse(const std::string& message) {
  return {.options = std::nullopt, .message = one_line(message), .exit_code = 2};
}

ParseResult refuse_command(const CLI::App& app, int argc, const char* const* argv) {
  std::string allowed;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    allowed += (allowed.empty() ? "" : ", ") + sub->get_name();
  const std::string given = argc > 1 ? "'" + std::string(argv[1]) + "' is not a command" : "a command is missing";
  return refuse(given + "; allowed: " + allowed + " (ferry --help)");
}

ParseResult refuse_count(const std::string& text) { return refuse(reword(text)); }

ParseResult refuse_extras(const CLI::App& app) {
  std::string given;
  for (const CLI::App* at = &app; at != nullptr; at = at->get_subcommands().empty() ? nullptr : at->get_subcommands().front())
    for (const std::string& argument : at->remaining()) given += (given.empty() ? "'" : ", '") + argument + "'";
  return refuse("not expected: " + given);
}

}  // namespace ferry

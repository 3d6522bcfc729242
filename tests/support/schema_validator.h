#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ferry::test {

/// Why `value` is not valid under a JSON schema (draft 2020-12), empty if it is. For tests: written from the specification
/// alone, slow, and without what no test has (not, if, contains, …).
std::string invalid(const nlohmann::json& value, const nlohmann::json& schema);

/// The same of a text; a number that no double can hold is valid JSON, but is not looked at.
std::string invalid_text(const std::string& text, const nlohmann::json& schema);

}  // namespace ferry::test

#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>

// What the readers of this folder's files share. All throw Error{kInvalidArgument} that names the place, the value and what is
// allowed.

namespace ferry::placement {

[[noreturn]] void refuse(const std::string& where, const nlohmann::json& value, const std::string& allowed);
const nlohmann::json& member(const nlohmann::json& object, const char* key, const std::string& name);
/// An object with these members and no others.
void require_members(const nlohmann::json& object, std::initializer_list<const char*> keys, const std::string& name);
int64_t whole_number(const nlohmann::json& value, const std::string& where, int64_t min, int64_t max);
const nlohmann::json& list_of(const nlohmann::json& value, const std::string& where, int64_t min, int64_t max);
std::string at(const std::string& where, int64_t index);

}  // namespace ferry::placement

#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ferry {

/// The types that a schema names or that its keywords are about; none: any.
using TypesOfSchema = std::function<std::vector<std::string>(const nlohmann::ordered_json& schema)>;

/// Whether no two of `schemas` (those of a oneOf) hold for one value that a grammar writes for one of them: their types, the
/// values of const and enum, or a property of objects that must be there in one and cannot be, or is another, in the other,
/// keep them apart. False where that is not seen at once. `types_of` tells what a grammar writes for a schema; what it is
/// compared with may be of any type that the schema does not exclude. References are looked up in `root`. At most
/// `max_comparisons` of two schemas are made, or, at fifty for one, of two values.
bool are_exclusive(const nlohmann::ordered_json& schemas, const nlohmann::ordered_json& root, const TypesOfSchema& types_of,
                   int64_t max_comparisons = 20000);

}  // namespace ferry

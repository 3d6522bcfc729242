#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ferry {

/// What becomes of keywords of a schema that are not enforced.
enum class UnenforcedKeywords { kRefuse, kDrop };

struct SchemaLimits {
  int depth = 48;
  int64_t schemas = 20000;     // of one document, subschemas counted
  int64_t repetitions = 4096;  // minItems, maxItems, and counts in a regex
  int64_t pattern_bytes = 2048;
};

/// A JSON schema (draft 2020-12, and draft 7's spelling of it) as the grammar's compiler enforces it in full: what that would
/// pass over in silence is refused here, with its path, or written in a form that it knows. Every text that the result allows
/// is valid under `schema`; the other way round, objects that list their properties get no others unless additionalProperties
/// says so, and a keyword that is about strings, say, makes a schema without a type one of strings. Throws
/// Error{kInvalidArgument}; `path` is where the schema stands in the request.
nlohmann::ordered_json enforceable_schema(const nlohmann::ordered_json& schema, const std::string& path,
                                          UnenforcedKeywords unenforced = UnenforcedKeywords::kRefuse,
                                          const SchemaLimits& limits = {});

}  // namespace ferry

#include <nlohmann/json.hpp>

// The members of the JSON class, compiled once. Sources that see runtime/base/precompiled.h refer to them.
template class nlohmann::basic_json<>;

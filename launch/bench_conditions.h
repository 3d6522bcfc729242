#pragma once

#include <nlohmann/json_fwd.hpp>

#include "runtime/options/options.h"

namespace ferry {

/// Of `ferry bench`, what its options say that changes what is measured, by the options' names: what two results must have in
/// common to be compared. What the run makes of others (threads, kernels, weights, the dtype of keys and values) the result
/// says beside it; lengths, batches and depths are in the names of its rows.
nlohmann::ordered_json option_conditions(const Options& options);

}  // namespace ferry

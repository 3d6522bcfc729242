#pragma once

#include <span>

#include "runtime/server/api/request_fields.h"

namespace ferry::api {

/// Throws ApiError 400 that names the first field that would change an answer and is not served, if its value asks for
/// anything: nothing is ignored that somebody may rely on.
void refuse_unserved(const RequestFields& fields);

/// The same for fields of `names`: they ask for something unless they are null, false, or an empty list or object.
void refuse_fields(const RequestFields& fields, std::span<const char* const> names);

}  // namespace ferry::api

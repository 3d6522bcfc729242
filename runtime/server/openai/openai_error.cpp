#include "runtime/server/openai/openai_error.h"

namespace ferry::api::openai {

ErrorForm openai_errors() {
  return {.response = [](const ApiError& error) { return error.response(); },
          .stream_end = [](const ApiError& error) { return "data: " + error.json() + "\n\n" + kStreamEnd; }};
}

}  // namespace ferry::api::openai

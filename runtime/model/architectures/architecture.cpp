#include "runtime/model/architectures/architecture.h"

#include <array>

#include "runtime/model/architectures/pages.h"

namespace ferry {
namespace {

constexpr std::array kAll{&kQwen35Moe, &kQwen35, &kQwen3Next, &kQwen3Moe, &kLfm2, &kLfm2Moe};

}  // namespace

const Architecture* find_architecture(std::string_view model_type) {
  for (const Architecture* architecture : kAll) {
    const char* text = architecture->text_model_type;
    if (model_type == architecture->model_type || (text != nullptr && model_type == text)) return architecture;
  }
  return nullptr;
}

std::string architecture_list() {
  std::string list;
  for (const Architecture* architecture : kAll) {
    for (const char* type : {architecture->model_type, architecture->text_model_type}) {
      if (type != nullptr) list += (list.empty() ? "" : ", ") + std::string(type);
    }
  }
  return list;
}

}  // namespace ferry

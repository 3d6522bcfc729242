#include "launch/inspect_verify.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/checkpoint/folder_check.h"
#include "runtime/cluster/core_policy.h"
#include "runtime/model/config.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr int kExitDamaged = 2;

const char* result_name(FileCheck::Result result) {
  switch (result) {
    case FileCheck::Result::kRight: return "right";
    case FileCheck::Result::kUnknown: return "no checksums";
    case FileCheck::Result::kDamaged: return "damaged";
    case FileCheck::Result::kMissing: return "missing";
  }
  return "";
}

bool is_unknown(const FileCheck& file) { return file.result == FileCheck::Result::kUnknown; }

void print_json(const std::vector<FileCheck>& files, bool has_checksums, const std::string& damage) {
  ordered_json list = ordered_json::array();
  for (const FileCheck& file : files) {
    list.push_back({{"file", file.name},
                    {"bytes", file.bytes},
                    {"tensors", file.tensors},
                    {"result", result_name(file.result)},
                    {"damage", file.damage.empty() ? ordered_json() : ordered_json(file.damage)}});
  }
  const ordered_json all{
      {"has_checksums", has_checksums}, {"damage", damage.empty() ? ordered_json() : ordered_json(damage)}, {"files", list}};
  std::printf("%s\n", all.dump(-1, ' ', false, ordered_json::error_handler_t::replace).c_str());
}

void print_text(const std::vector<FileCheck>& files, bool has_checksums) {
  for (const FileCheck& file : files) {
    const std::string tensors = file.tensors > 0 ? ", " + std::to_string(file.tensors) + " tensors" : "";
    const bool is_missing = file.result == FileCheck::Result::kMissing;
    const std::string size = is_missing ? "" : " (" + std::to_string(file.bytes) + " bytes" + tensors + ")";
    std::printf("%-12s  %s%s\n", result_name(file.result), printable(file.name).c_str(), size.c_str());
  }
  if (!has_checksums) {
    std::printf(
        "The headers, sizes and names fit together. The bytes have no checksums, so nothing tells whether they changed.\n"
        "Folders that `ferry quantize` writes have them.\n");
  }
}

}  // namespace

int run_verify(const Options& options) {
  ThreadPool pool(available_cores());
  std::vector<FileCheck> files;
  bool has_checksums = false;
  std::string damage;
  try {
    files = check_folder(options.engine.model, pool);
    has_checksums = std::ranges::none_of(files, is_unknown);
    const auto first = std::ranges::find_if(files, [](const FileCheck& file) { return !file.damage.empty(); });
    if (first == files.end())
      load_config(options.engine.model);
    else
      damage = first->damage;
  } catch (const Error& error) {
    if (options.inspect.json) print_json(files, has_checksums, error.what());
    throw;
  }
  if (options.inspect.json)
    print_json(files, has_checksums, damage);
  else
    print_text(files, has_checksums);
  if (damage.empty()) return 0;
  std::fflush(stdout);
  std::fprintf(stderr, "ferry: error: %s\n", one_line(damage).c_str());
  return kExitDamaged;
}

}  // namespace ferry

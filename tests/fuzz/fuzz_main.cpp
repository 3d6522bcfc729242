#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/base/error.h"
#include "tests/fuzz/targets.h"

// One program for all targets: `ferry_fuzz --target=NAME [libFuzzer's options] [folders]`, `ferry_fuzz --list`. libFuzzer
// ignores what begins with two dashes.

namespace {

const ferry::fuzz::Target* g_target = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr const char* kFlag = "--target=";
  const char* wanted = "";
  for (int i = 1; i < *argc; ++i) {
    const char* argument = (*argv)[i];
    if (std::strncmp(argument, kFlag, std::strlen(kFlag)) == 0) wanted = argument + std::strlen(kFlag);
    if (std::strcmp(argument, "--list") == 0) {
      for (const auto& target : ferry::fuzz::all_targets()) std::printf("%s\n", target.name);
      std::exit(0);
    }
  }
  for (const auto& target : ferry::fuzz::all_targets())
    if (std::strcmp(target.name, wanted) == 0) g_target = &target;
  if (g_target == nullptr) {
    std::fprintf(stderr, "ferry_fuzz: no target is called '%s'; --list names them\n", wanted);
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    g_target->run({data, size});
  } catch (const ferry::Error&) {  // refused, as it may be
  }
  return 0;
}

#include "profiler/stacks/unwinder.h"

#include <cxxabi.h>
#include <elfutils/libdwfl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string_view>
#include <vector>

// libdw's own way: a process is attached whose memory and registers are asked for by callbacks, which here answer from a copy.

namespace ferry {
namespace {

struct Free {
  void operator()(char* text) const { std::free(text); }
};

std::string shortened(std::string text) {
  if (text.size() > kMaxFrameName) text.resize(kMaxFrameName);
  return text;
}

std::string demangle(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, Free> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status));
  return shortened(status == 0 && name != nullptr ? name.get() : symbol);
}

std::string file_name(const char* path) {
  const std::string_view text = path == nullptr ? "" : path;
  return shortened(std::string(text.substr(text.rfind('/') + 1)));
}

std::string place_in(const std::string& file, uintptr_t offset) {
  char place[2 + 2 * sizeof offset + 1];
  std::snprintf(place, sizeof place, "0x%jx", static_cast<uintmax_t>(offset));
  return shortened(file + "+" + place);
}

/// Unwinding tables and symbols lie in the files themselves; what would be searched for elsewhere is not needed.
int find_no_debuginfo(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word, char**) { return -1; }

constexpr Dwfl_Callbacks kFileCallbacks{.find_elf = dwfl_linux_proc_find_elf, .find_debuginfo = find_no_debuginfo};

/// The one thread there is: that of the stack at hand. `at`: a pointer to the pointer to it.
pid_t next_thread(Dwfl*, void* at, void** thread) {
  if (*thread != nullptr) return 0;
  *thread = at;
  return 1;
}
bool get_thread(Dwfl*, pid_t, void* at, void** thread) {
  *thread = at;
  return true;
}

const RawStack& stack_at(void* at) { return **static_cast<const RawStack**>(at); }

bool read_word(Dwfl*, Dwarf_Addr address, Dwarf_Word* word, void* at) {
  const RawStack& stack = stack_at(at);
  const uint64_t offset = address - stack.sp;  // of an address below it: beyond everything
  if (address < stack.sp || offset % sizeof(uint64_t) != 0 || offset / sizeof(uint64_t) >= stack.num_words) return false;
  *word = stack.words[offset / sizeof(uint64_t)];
  return true;
}

bool set_registers(Dwfl_Thread* thread, void* at) {
  const RawStack& stack = stack_at(at);
#if defined(__x86_64__)
  constexpr unsigned kRegisters = 17;
#else
  constexpr unsigned kRegisters = 32;
#endif
  dwfl_thread_state_register_pc(thread, stack.pc);
  return dwfl_thread_state_registers(thread, 0, kRegisters, stack.registers.data());
}

constexpr Dwfl_Thread_Callbacks kThreadCallbacks{
    .next_thread = next_thread, .get_thread = get_thread, .memory_read = read_word, .set_initial_registers = set_registers};

int add_call(Dwfl_Frame* frame, void* to) {
  auto& calls = *static_cast<std::vector<uintptr_t>*>(to);
  Dwarf_Addr pc = 0;
  bool is_interrupted = false;  // else it has called: the address is that behind the call
  if (!dwfl_frame_pc(frame, &pc, &is_interrupted) || calls.size() == kMaxStackDepth) return DWARF_CB_ABORT;
  calls.push_back(is_interrupted ? pc : pc - 1);
  return DWARF_CB_OK;
}

/// A module's functions by address. libdwfl looks through all symbols for each address: 0.2 ms in a program of 30,000.
class FunctionIndex {
 public:
  explicit FunctionIndex(Dwfl_Module* module) {
    const int count = dwfl_module_getsymtab(module);
    for (int i = 0; i < count; ++i) {
      GElf_Sym symbol;
      GElf_Addr address = 0;
      const char* name = dwfl_module_getsym_info(module, i, &symbol, &address, nullptr, nullptr, nullptr);
      const int type = GELF_ST_TYPE(symbol.st_info);
      if (name == nullptr || *name == '\0' || symbol.st_size == 0 || (type != STT_FUNC && type != STT_GNU_IFUNC)) continue;
      functions_.push_back({address, address + symbol.st_size, name});
    }
    std::ranges::stable_sort(functions_, {}, &Function::begin);
  }

  /// Mangled; null if no function with a size holds the address.
  const char* find(uintptr_t address) const {
    const auto behind = std::ranges::upper_bound(functions_, address, {}, &Function::begin);
    if (behind == functions_.begin()) return nullptr;
    const Function& function = *std::prev(behind);
    return address < function.end ? function.name : nullptr;
  }

 private:
  struct Function {
    uintptr_t begin, end;
    const char* name;  // libdwfl's
  };
  std::vector<Function> functions_;
};

}  // namespace

struct Unwinder::Modules {
  Modules() : all(dwfl_begin(&kFileCallbacks)) {
    if (all == nullptr) return;
    dwfl_report_begin(all);
    is_ready = dwfl_linux_proc_report(all, getpid()) == 0 && dwfl_report_end(all, nullptr, nullptr) == 0 &&
               dwfl_attach_state(all, nullptr, getpid(), &kThreadCallbacks, &stack);
  }
  ~Modules() { dwfl_end(all); }
  Modules(const Modules&) = delete;
  Modules& operator=(const Modules&) = delete;

  const FunctionIndex& functions_of(Dwfl_Module* module) { return functions.try_emplace(module, module).first->second; }

  Dwfl* all;
  const RawStack* stack = nullptr;
  bool is_ready = false;
  std::map<Dwfl_Module*, FunctionIndex> functions;  // of modules of which one was asked for
};

Unwinder::Unwinder() : modules_(std::make_unique<Modules>()) {
  if (modules_->is_ready) return;
  const char* reason = dwfl_errmsg(-1);
  absent_ = std::string("libdw does not read this process: ") + (reason == nullptr ? "no reason given" : reason);
}

Unwinder::~Unwinder() = default;

std::vector<uintptr_t> Unwinder::find_calls(const RawStack& stack) {
  std::vector<uintptr_t> calls;
  modules_->stack = &stack;
  dwfl_getthread_frames(modules_->all, 1, add_call, &calls);  // ends with an error where the copy or the tables end
  if (calls.empty()) calls.push_back(stack.pc);
  return calls;
}

StackFrame Unwinder::find_function(uintptr_t address) {
  Dwfl_Module* module = dwfl_addrmodule(modules_->all, address);
  if (module == nullptr) return {.function = place_in("", address), .module = ""};
  Dwarf_Addr begin = 0;
  const char* path = dwfl_module_info(module, nullptr, &begin, nullptr, nullptr, nullptr, nullptr, nullptr);
  const std::string file = file_name(path);
  const char* symbol = modules_->functions_of(module).find(address);
  if (symbol == nullptr) symbol = dwfl_module_addrname(module, address);  // one of assembly, without a size
  return {.function = symbol != nullptr ? demangle(symbol) : place_in(file, address - begin), .module = file};
}

}  // namespace ferry

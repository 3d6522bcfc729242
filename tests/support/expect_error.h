#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace ferry::test {

/// `text` is one line that holds every string of `parts`.
inline void expect_one_line_with(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  for (const char c : text) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << "control character in: " << text;
}

/// Runs `fn`, which must throw an Error with `code` whose one-line message holds every string of `parts`.
template <class Fn>
void expect_error(Fn&& fn, ErrorCode code, const std::vector<std::string>& parts) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_STREQ(error_code_name(error.code()), error_code_name(code)) << error.what();
    expect_one_line_with(error.what(), parts);
    return;
  }
  ADD_FAILURE() << "no error; expected " << error_code_name(code) << " with '" << (parts.empty() ? "" : parts.front()) << "'";
}

}  // namespace ferry::test

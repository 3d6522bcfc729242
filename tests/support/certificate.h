#pragma once

#include <string>

namespace ferry::test {

/// PEM texts.
struct Certificate {
  std::string certificate;
  std::string key;
};

/// A new self-signed certificate for 127.0.0.1 and `name`, good for a day; it may also sign itself as a CA.
Certificate make_certificate(const std::string& name);

}  // namespace ferry::test

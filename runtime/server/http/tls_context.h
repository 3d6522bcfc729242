#pragma once

#include <boost/asio/ssl/context.hpp>

#include "runtime/server/access.h"

namespace ferry {

/// TLS 1.2 and above with `identity`; if it names who signs clients' certificates, clients must show one. Throws
/// Error{kInvalidArgument} that names the option whose file cannot be used.
boost::asio::ssl::context make_tls_context(const TlsIdentity& identity);

}  // namespace ferry

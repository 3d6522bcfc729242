#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdint>

// Short names for what the sources of this folder have of Boost, for them alone.

namespace ferry {

namespace beast = boost::beast;
namespace http = beast::http;
namespace net = boost::asio;
using boost::system::error_code;
using tcp = net::ip::tcp;

/// As timers and deadlines take it.
inline std::chrono::nanoseconds nanoseconds_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

}  // namespace ferry

#pragma once

#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <optional>
#include <string>

#include "runtime/options/server_limits.h"
#include "runtime/server/http/message.h"

// Request line and headers, from the library that reads them to the form that Ferry judges.

namespace ferry {

using HttpParser = boost::beast::http::request_parser<boost::beast::http::buffer_body>;

/// Has a new parser refuse heads and bodies beyond `limits` while it reads them.
void set_limits(HttpParser& parser, const ServerLimits& limits);

/// What a whole head is refused with, whatever its route: too many headers, or a body whose end another program on the way may
/// have seen at another place. What follows such a head is no request of anybody's, so the connection has to end.
std::optional<HttpResponse> check_head(const HttpParser& parser, const ServerLimits& limits);

/// Method and path alone, which are there as soon as the first line is read.
HttpRequest read_target(const HttpParser& parser);

/// The request without its body; `local_address` of this end of the connection.
HttpRequest read_head(const HttpParser& parser, const std::string& local_address);

}  // namespace ferry

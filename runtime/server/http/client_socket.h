#pragma once

namespace ferry {

/// Has the system send at once what is written to `socket`, and end a connection whose other end has vanished without a word:
/// it asks after 30 s without traffic, and what nobody confirms for `write_s` seconds is given up. What a system does not know
/// of these is left out.
void set_client_options(int socket, double write_s);

}  // namespace ferry

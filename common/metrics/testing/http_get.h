#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace arborist {

// A socket connected to this machine's `port`; the caller closes it.
inline int ConnectTo(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  return socket;
}

// One request to this machine, as a scraper makes it; the answer with its headers.
inline std::string HttpGet(int port, const std::string& path) {
  const int socket = ConnectTo(port);
  std::string answer;
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  EXPECT_EQ(write(socket, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  char buffer[4096];
  for (ssize_t got = 0; (got = read(socket, buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(got));
  }
  close(socket);
  return answer;
}

}  // namespace arborist

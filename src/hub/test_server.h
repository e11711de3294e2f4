// SPDX-License-Identifier: Apache-2.0
// For tests: an HTTP server on 127.0.0.1 inside the test's process whose replies the test scripts. One request per
// connection.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"

namespace nanomind::test {

struct ServerRequest {
  std::string target;                          // as on the request line
  std::map<std::string, std::string> headers;  // names in lower case

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  // N of "Range: bytes=N-".
  std::optional<size_t> range_start() const {
    const std::string range = header("range");
    if (!range.starts_with("bytes=")) return std::nullopt;
    return std::stoul(range.substr(6));
  }
};

enum class AfterBody { close, stay_silent };

struct ServerReply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  std::optional<size_t> announced_length = {};  // Content-Length when it is to be another than the body's
  AfterBody after_body = AfterBody::close;
};

class TestServer {
 public:
  // Called from the server's threads, one at a time.
  using Handler = std::function<ServerReply(const ServerRequest&)>;

  explicit TestServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(listener_ >= 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    CHECK(::listen(listener_, 16) == 0);
    CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }

  ~TestServer() {
    stopping_ = true;
    acceptor_.join();
    for (std::thread& connection : connections_) connection.join();
    ::close(listener_);
  }

  std::string url(const std::string& path = "") const { return "http://127.0.0.1:" + std::to_string(port_) + path; }

  std::vector<ServerRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  // False when the server is being stopped.
  bool wait_readable(int fd) const {
    while (!stopping_) {
      pollfd item = {.fd = fd, .events = POLLIN, .revents = 0};
      if (::poll(&item, 1, 20) > 0) return true;
    }
    return false;
  }

  void accept_all() {
    while (wait_readable(listener_)) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) connections_.emplace_back([this, fd] { serve(fd); });
    }
  }

  void serve(int fd) {
    std::string text;
    char block[4096];
    while (text.find("\r\n\r\n") == std::string::npos && wait_readable(fd)) {
      const ssize_t got = ::recv(fd, block, sizeof block, 0);
      if (got <= 0) break;
      text.append(block, static_cast<size_t>(got));
    }
    if (text.find("\r\n\r\n") != std::string::npos) answer(fd, parse(text));
    ::close(fd);
  }

  void answer(int fd, const ServerRequest& request) {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    ServerReply reply;
    {
      const std::lock_guard lock(handler_mutex_);
      reply = handler_(request);
    }
    std::string out = "HTTP/1.1 " + std::to_string(reply.status) + " x\r\nConnection: close\r\nContent-Length: " +
                      std::to_string(reply.announced_length.value_or(reply.body.size())) + "\r\n";
    for (const auto& [name, value] : reply.headers) out += name + ": " + value + "\r\n";
    out += "\r\n" + reply.body;
    for (size_t sent = 0; sent < out.size();) {
      const ssize_t put = ::send(fd, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
      if (put <= 0) return;
      sent += static_cast<size_t>(put);
    }
    // Readable now means that the client has gone.
    if (reply.after_body == AfterBody::stay_silent) wait_readable(fd);
  }

  static ServerRequest parse(const std::string& text) {
    ServerRequest request;
    const size_t first = text.find(' ');
    request.target = text.substr(first + 1, text.find(' ', first + 1) - first - 1);
    for (size_t at = text.find("\r\n") + 2; text.compare(at, 2, "\r\n") != 0;) {
      const size_t end = text.find("\r\n", at);
      const size_t colon = text.find(':', at);
      std::string name = text.substr(at, colon - at);
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      request.headers[name] = text.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    return request;
  }

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
  std::vector<std::thread> connections_;
  mutable std::mutex mutex_;
  std::mutex handler_mutex_;
  std::vector<ServerRequest> requests_;
};

// Serves `content` under any address the way good servers do: with an etag, ranges, and If-Range.
inline ServerReply serve_content(const ServerRequest& request, const std::string& content, const std::string& etag) {
  const auto start = request.range_start();
  const std::string condition = request.header("if-range");
  if (!start || (!condition.empty() && condition != etag)) return {.headers = {{"ETag", etag}}, .body = content};
  if (*start >= content.size()) return {.status = 416};
  return {.status = 206,
          .headers = {{"ETag", etag},
                      {"Content-Range", "bytes " + std::to_string(*start) + "-" + std::to_string(content.size() - 1) +
                                            "/" + std::to_string(content.size())}},
          .body = content.substr(*start)};
}

}  // namespace nanomind::test

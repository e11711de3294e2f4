// SPDX-License-Identifier: Apache-2.0
// A function that can be suspended in its middle and resumed, on a stack of its own and the thread of whoever resumes
// it: for tests that decide who goes on. Sanitizers are told of the switches, where there are any.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

// Of sanitizer/common_interface_defs.h and tsan_interface.h; null in programs without that sanitizer.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t size);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_bottom, size_t* old_size);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
// NOLINTEND(readability-identifier-naming)

namespace nanomind {

class TestFiber {
 public:
  TestFiber() : tsan_(__tsan_create_fiber != nullptr ? __tsan_create_fiber(0) : nullptr) {
    getcontext(&inside_);
    inside_.uc_stack.ss_sp = stack_.get();
    inside_.uc_stack.ss_size = kStackBytes;
    const auto self = reinterpret_cast<uintptr_t>(this);  // makecontext passes int
    makecontext(&inside_, reinterpret_cast<void (*)()>(live), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
  }
  ~TestFiber() {
    if (tsan_ != nullptr) __tsan_destroy_fiber(tsan_);
  }
  TestFiber(const TestFiber&) = delete;
  TestFiber& operator=(const TestFiber&) = delete;

  // Begins `body` with the next resume(); the one before has ended.
  void start(std::function<void()> body) { body_ = std::move(body); }

  // Runs `body` until it calls suspend() or ends. From outside.
  void resume() {
    if (tsan_ != nullptr) {
      tsan_outside_ = __tsan_get_current_fiber();
      __tsan_switch_to_fiber(tsan_, 0);
    }
    void* fake_stack = nullptr;
    if (__sanitizer_start_switch_fiber != nullptr)
      __sanitizer_start_switch_fiber(&fake_stack, stack_.get(), kStackBytes);
    swapcontext(&outside_, &inside_);
    if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
  }

  // From inside.
  void suspend() {
    void* fake_stack = nullptr;
    leave(&fake_stack);
    swapcontext(&inside_, &outside_);
    arrive(fake_stack);
  }

 private:
  static constexpr size_t kStackBytes = size_t{256} << 10;

  // Never returns, so that one stack and one entry serve all bodies.
  static void live(unsigned high, unsigned low) {
    auto* self = reinterpret_cast<TestFiber*>(uintptr_t{high} << 32 | low);
    self->arrive(nullptr);
    for (;;) {
      self->body_();
      self->suspend();
    }
  }
  // Inlined, as the thread sanitizer would count the call on one side and the return on the other.
  [[gnu::always_inline]] void leave(void** fake_stack) {
    if (tsan_ != nullptr) __tsan_switch_to_fiber(tsan_outside_, 0);
    if (__sanitizer_start_switch_fiber != nullptr)
      __sanitizer_start_switch_fiber(fake_stack, outside_bottom_, outside_size_);
  }
  [[gnu::always_inline]] void arrive(void* fake_stack) {
    if (__sanitizer_finish_switch_fiber != nullptr)
      __sanitizer_finish_switch_fiber(fake_stack, &outside_bottom_, &outside_size_);
  }

  std::unique_ptr<std::byte[]> stack_ = std::make_unique<std::byte[]>(kStackBytes);
  std::function<void()> body_;
  ucontext_t inside_{};
  ucontext_t outside_{};
  const void* outside_bottom_ = nullptr;
  size_t outside_size_ = 0;
  void* tsan_;
  void* tsan_outside_ = nullptr;
};

}  // namespace nanomind

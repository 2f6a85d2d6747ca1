// The names and semantics of C++26 [saferecl.rcu], in namespace manycore. C++17 or later.
//
//     struct config : manycore::rcu_obj_base<config> { int limit; };
//     std::atomic<config *> current;
//
//     std::scoped_lock region(manycore::rcu_default_domain());      // reader
//     int limit = current.load()->limit;
//
//     current.exchange(new config)->retire();                       // updater
//
// What the standard leaves to implementations:
// - Evaluations may be invoked by retire, rcu_retire, unlock and rcu_barrier, in any thread. So a
//   deleter must not take a lock that a thread holds around one of these.
// - rcu_retire allocates with operator new; retire does not.
// - rcu_synchronize and rcu_barrier end the process with a message if they would wait for
//   themselves: inside a region, or in a deleter.
// - If a thread ends inside a region of RCU protection, the region is closed.
//
// rcu_domain_of gives a domain of the program's own, made by mc_domain_new, which the standard does
// not have. In a bounded domain, pointers are loaded by section::protect of manycore.hpp, or by
// mc_protect, and its rules hold.
#ifndef MANYCORE_RCU_HPP
#define MANYCORE_RCU_HPP

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "manycore.h"

namespace manycore {

class rcu_domain {
public:
	rcu_domain(const rcu_domain &) = delete;
	rcu_domain &operator=(const rcu_domain &) = delete;

	// Opens a region of RCU protection. Regions nest.
	void lock() noexcept { mc_enter(handle_); }
	bool try_lock() noexcept
	{
		lock();
		return true;
	}
	// Closes the region that the thread opened last.
	void unlock() noexcept { mc_leave(handle_); }

	// Not in the standard: returns the C domain.
	const mc_domain *native_handle() const noexcept { return handle_; }

protected:
	explicit rcu_domain(const mc_domain *handle) noexcept : handle_(handle) {}
	~rcu_domain() = default;

private:
	const mc_domain *handle_;
};

// Not in the standard: a domain made by mc_domain_new. mc_domain_free frees it when no thread uses
// this any more.
class rcu_domain_of : public rcu_domain {
public:
	explicit rcu_domain_of(const mc_domain *handle) noexcept : rcu_domain(handle) {}
};

inline rcu_domain &rcu_default_domain() noexcept
{
	static rcu_domain_of domain(mc_domain_default());
	return domain;
}

inline void rcu_synchronize(rcu_domain &dom = rcu_default_domain()) noexcept
{
	if (mc_synchronize(dom.native_handle()) != 0)
		mc_misuse_("rcu_synchronize in a region or a deleter would wait for itself");
}

inline void rcu_barrier(rcu_domain &dom = rcu_default_domain()) noexcept
{
	if (mc_barrier(dom.native_handle()) != 0)
		mc_misuse_("rcu_barrier in a region or a deleter would wait for itself");
}

namespace detail {

// Returns the bytes that are freed with an object, or 0 if unknown: an object with a destructor may
// own more.
template <class T>
constexpr std::size_t weight() noexcept
{
	if constexpr (std::is_void<T>::value || !std::is_trivially_destructible<T>::value)
		return 0;
	else
		return sizeof(T);
}

} // namespace detail

template <class T, class D = std::default_delete<T>>
class rcu_obj_base : private mc_head {
public:
	void retire(D d = D(), rcu_domain &dom = rcu_default_domain()) noexcept
	{
		static_assert(std::is_base_of<rcu_obj_base, T>::value, "T has this as its base");
		deleter_ = std::move(d);
		mc_retire(dom.native_handle(), this, detail::weight<T>(), &rcu_obj_base::evaluate);
	}

	// Not in the standard: like mc_born. Call it before the object is linked in a bounded domain.
	// Every object that is retired there needs it.
	void born(rcu_domain &dom) noexcept { mc_born(dom.native_handle(), this); }

protected:
	rcu_obj_base() = default;
	rcu_obj_base(const rcu_obj_base &) = default;
	rcu_obj_base(rcu_obj_base &&) = default;
	rcu_obj_base &operator=(const rcu_obj_base &) = default;
	rcu_obj_base &operator=(rcu_obj_base &&) = default;
	~rcu_obj_base() = default;

private:
	static void evaluate(mc_head *head) noexcept
	{
		auto *base = static_cast<rcu_obj_base *>(head);
		base->deleter_(static_cast<T *>(base));
	}

	D deleter_;
};

namespace detail {

template <class T, class D>
struct retired : mc_head {
	T *pointer;
	D deleter;

	retired(T *p, D &&d) : mc_head(), pointer(p), deleter(std::move(d)) {}

	static void evaluate(mc_head *head) noexcept
	{
		std::unique_ptr<retired> self(static_cast<retired *>(head));
		self->deleter(self->pointer);
	}
};

} // namespace detail

// If this throws, nothing is scheduled.
template <class T, class D = std::default_delete<T>>
void rcu_retire(T *p, D d = D(), rcu_domain &dom = rcu_default_domain())
{
	static_assert(std::is_move_constructible<D>::value, "D is move constructible");
	static_assert(std::is_invocable<D &, T *>::value, "d(p) is well-formed");
	auto *node = new detail::retired<T, D>(p, std::move(d));
	mc_retire(dom.native_handle(), node, detail::weight<T>(),
	    &detail::retired<T, D>::evaluate);
}

} // namespace manycore

#endif

// A buffer in which a kernel leaves an index that lies outside its axis; reading the result makes it an error
// (metal/fault.rs).
#include "host/FaultRecord.h"

// Records an index that is out of range, unless there is one already. The kernel continues without using it.
inline void report(device FaultRecord* fault, long index) {
    uint none = 0;
    while (none == 0) {
        if (atomic_compare_exchange_weak_explicit(&fault->found, &none, 1u, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            fault->index = index;
            return;
        }
    }
}

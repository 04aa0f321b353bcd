// Where a kernel leaves an index that lies outside its axis; metal/fault.rs makes it an error for whoever
// reads the result.
#include "host/FaultRecord.h"

// Notes an index that is out of range, unless there is one already. The kernel goes on without using it.
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

// In the order in which data flows: databases, repositories, commits, delivery.
export { type MemoryOptions, memory, memorySharding, MemoryServer } from './memory.js';
export { type Condition, type MemoryPageRequest, MemoryRepository } from './memory-repository.js';
export { MemoryTransactionManager, joinedManager, memoryManager } from './memory-transaction-manager.js';
export {
  type MemoryAudit,
  type MemoryChange,
  type MemoryCommit,
  type MemoryKey,
  type MemorySnapshot,
  MemoryTables,
} from './memory-tables.js';
export {
  ConnectionLostError,
  type MemoryFault,
  MemoryFaults,
  type MemoryOperation,
  type MemoryMessage,
  type MemoryRequest,
  type StoreMethod,
} from './memory-faults.js';
export { MemoryRow } from './memory-row.js';

export { MemoryAccess } from './delivery/memory-access.js';
export { MemoryDeliveryStore } from './delivery/memory-delivery-store.js';
export {
  type MemoryDeliverySnapshot,
  MemoryDeliveryTables,
  type MemoryLease,
  type MemoryBlocked,
  type MemoryProcess,
  modelKey,
  waits,
} from './delivery/memory-delivery-tables.js';

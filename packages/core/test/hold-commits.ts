import type { FakeTransactionManager } from './fake-databases.js';

/** Holds back the single commits of a shard; returns a function that releases them. */
export function holdCommits(manager: FakeTransactionManager): () => void {
  const gate = Promise.withResolvers<void>();
  const persist = manager.persist.bind(manager);
  manager.persist = async (changes) => {
    await gate.promise;
    return persist(changes);
  };
  return gate.resolve;
}

import {
  describeStorageAdapter,
  firstShard,
  otherDatabaseShard,
  sameDatabaseShard,
} from '@framework/conformance';
import { MemoryFixture } from './memory-fixture.js';

/** A store that cannot write several change sets together, so that each is persisted on its own. */
function openWithoutGroups(): MemoryFixture {
  const fixture = new MemoryFixture();
  for (const shard of [firstShard, sameDatabaseShard, otherDatabaseShard])
    fixture.databases.transactionManager(shard).persistAll = async (group) => group.map(() => 'single');
  return fixture;
}

describeStorageAdapter('memory, without groups', async () => openWithoutGroups());
describeStorageAdapter('memory, without groups, with group commit', async () => openWithoutGroups(), {
  groupCommit: true,
});

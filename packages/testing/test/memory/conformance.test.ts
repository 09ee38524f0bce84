import { describeStorageAdapter } from '@framework/conformance';
import { MemoryFixture } from './memory-fixture.js';

describeStorageAdapter('memory', async () => new MemoryFixture());
describeStorageAdapter('memory, with grouped commit', async () => new MemoryFixture(), { groupCommit: true });

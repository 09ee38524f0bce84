import { describeDeliveryStore, describeStorageAdapter } from '@framework/conformance';
import { MemoryDeliveryFixture } from './delivery-fixture.js';
import { MemoryFixture } from './memory-fixture.js';

describeStorageAdapter('memory', async () => new MemoryFixture());
describeStorageAdapter('memory, with group commit', async () => new MemoryFixture(), { groupCommit: true });
describeDeliveryStore('memory', async () => new MemoryDeliveryFixture());

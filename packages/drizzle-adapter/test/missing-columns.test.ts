// @module-tag postgres
import { Tag, firstShard } from '@framework/conformance';
import { createTestDatabase } from '@framework/testing/postgres';
import { expect, onTestFinished, test } from 'vitest';
import { openSuite } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';

const missing =
  /column (tags\.label|"label" of relation "tags") does not exist \(42703\): add it by a migration, or remove it from/;

test.each([false, true])(
  'every statement names a column that the table lacks, and a remedy (group commit: %s)',
  async (groupCommit) => {
    const database = await createTestDatabase();
    onTestFinished(() => database.drop());
    const suite = await openSuite(database.url, {}, { groupCommit });
    const { tags } = suite.fixture;
    const [tag] = await suite.store(Tag.of(firstShard, 'stored'));
    await query(database.url, 'alter table tags drop column label');
    const add = () => suite.store(Tag.of(firstShard, 'new'));
    const uses: readonly (() => Promise<unknown>)[] = [
      add,
      () => Promise.all([add(), add()]),
      () => suite.stage((plan) => plan.update(tag.delete())),
      () => tags.getById(tag.id),
      () => Promise.all([tags.getById(tag.id), tags.getById(tag.id)]),
      () => tags.findPage({ limit: 1 }),
    ];
    for (const use of uses)
      await expect(use()).rejects.toMatchObject({
        code: 'storage-failure',
        message: expect.stringMatching(missing),
      });
  },
);

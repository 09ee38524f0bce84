import { basename } from 'node:path';

import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

import base from '../../vitest.config.js';

/** The tests that mutants meet: those that need no database, no other process and no built package. */
const include: Readonly<Record<string, readonly string[]>> = {
  'packages/core': ['{src,test}/**/*.test.ts'],
  'packages/events': ['{src,test}/**/*.test.ts'],
  'packages/drizzle-adapter': ['src/**/*.test.ts'],
  'apps/wallet-service': ['src/{actions,handlers,notification,transfer,wallet}/**/*.test.ts'],
};

/** Begins with the tests beside the source that has the mutant: most mutants end there, and the other files are not run. */
class NearestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const [mutated] = this.ctx.config.related ?? [];
    if (mutated === undefined) return super.sort(files);
    const nearness = ({ moduleId }: TestSpecification) => prefixLength(moduleId, mutated);
    return [...files].sort((one, other) => nearness(other) - nearness(one));
  }
}

function prefixLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length++;
  return length;
}

const { globalSetup: _, projects: __, ...test } = base.test ?? {};

export default defineConfig({
  ...base,
  test: {
    ...test,
    // A test that waits for what its mutant never does ends soon. These tests take milliseconds.
    testTimeout: 2_000,
    hookTimeout: 2_000,
    expect: { poll: { timeout: 1_000, interval: 20 } },
    sequence: { sequencer: NearestFirst },
    projects: Object.entries(include)
      .filter(([root]) => process.env['MUTANTS_MEMBERS']?.split(',').includes(root))
      .map(([root, files]) => ({
        extends: true as const,
        test: { name: basename(root), root, include: [...files] },
      })),
  },
});

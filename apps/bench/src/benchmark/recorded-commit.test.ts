import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { checkRecordable } from './recorded-ratios.js';
import { commitIn } from './report.js';

describe('the commit to which figures belong', () => {
  let checkout: string;

  beforeEach(() => {
    checkout = mkdtempSync(join(tmpdir(), 'bench-checkout-'));
    mkdirSync(join(checkout, 'apps/bench'), { recursive: true });
    for (const file of ['source.ts', 'apps/bench/recorded.json']) writeFileSync(join(checkout, file), '1');
    git('init', '--quiet');
    git('add', '.');
    git('-c', 'user.name=tester', '-c', 'user.email=tester@localhost', 'commit', '--quiet', '--message=all');
  });

  afterEach(() => {
    rmSync(checkout, { recursive: true, force: true });
  });

  test('is named if the files are unchanged since the commit, and may be recorded', () => {
    expect(commitIn(checkout)).toBe(git('rev-parse', '--short=12', 'HEAD'));
    checkRecordable(commitIn(checkout));
  });

  test('is dirty if a file has been changed, and is not recorded', () => {
    writeFileSync(join(checkout, 'source.ts'), '2');
    expect(commitIn(checkout)).toMatch(/-dirty$/);
    expect(() => checkRecordable(commitIn(checkout))).toThrow(/commit them, then record again/);
  });

  test('stays clean while parts of the ratios are recorded, whatever folder it is asked in', () => {
    writeFileSync(join(checkout, 'apps/bench/recorded.json'), '2');
    expect(commitIn(join(checkout, 'apps/bench'))).not.toMatch(/-dirty$/);
  });

  test('is unknown if there is no checkout', () => {
    rmSync(join(checkout, '.git'), { recursive: true });
    expect(commitIn(checkout)).toBe('unknown');
    checkRecordable(commitIn(checkout));
  });

  function git(...args: readonly string[]): string {
    return execFileSync('git', args, { cwd: checkout, encoding: 'utf8' }).trim();
  }
});

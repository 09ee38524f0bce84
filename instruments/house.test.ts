import { globSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('..', import.meta.url));
const sources = globSync('{packages,apps}/*/src/**/*.ts', { cwd: root }).filter(
  (file) => !/\.test(-d)?\.ts$/.test(file) && !/^(packages\/bench|apps\/counter)\//.test(file),
);

test('the packages and the service have no more source files than a reader can know', () => {
  expect(sources.length).toBeLessThanOrEqual(280);
});

test('few source files are so short that they might live with their caller', () => {
  expect(sources.filter((file) => linesOf(file) <= 30).length).toBeLessThanOrEqual(45);
});

test('no source file is longer than 400 lines', () => {
  expect(sources.filter((file) => linesOf(file) > 400)).toEqual([]);
});

test('the front door of core has no more names than an application needs', () => {
  expect(exportedNames('packages/core/src/index.ts').length).toBeLessThanOrEqual(60);
});

test('the scripts are few', () => {
  const lines = globSync('scripts/**/*.*', { cwd: root }).map(linesOf);
  expect(lines.reduce((sum, count) => sum + count, 0)).toBeLessThanOrEqual(400);
});

function linesOf(file: string): number {
  return readFileSync(`${root}/${file}`, 'utf8').trimEnd().split('\n').length;
}

function exportedNames(file: string): readonly string[] {
  const lists = readFileSync(`${root}/${file}`, 'utf8').matchAll(/^export (?:type )?\{([^}]*)\}/gm);
  return [...lists].flatMap(([, list = '']) => list.split(',').map((name) => name.trim())).filter(Boolean);
}

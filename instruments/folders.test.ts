import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { expect, test } from 'vitest';

// Inside a package, a file imports only from its own folder and from those below, types included. docs/architecture.md has the
// order of the folders, lowest first, together with the files beside them; entries come last.
const root = join(import.meta.dirname, '..');
const page = readFileSync(join(root, 'docs/architecture.md'), 'utf8');
const orders = new Map(
  [...page.matchAll(/^\| `packages\/(\S+)` +\| ((?:[a-z-]+, )+[a-z-]+) +\|$/gm)].map(
    ([, name = '', order = '']) => [name, order.split(', ')] as const,
  ),
);

const packages = ['core', 'conformance', 'drizzle-adapter', 'events', 'testing'];

test.each(packages)('the folders of %s import only from those below them', (name) => {
  const order = orders.get(name) ?? [];
  const upward = importsOf(name).filter(
    ([from, to]) => order.indexOf(placeOf(from)) < order.indexOf(placeOf(to)),
  );
  expect(upward.map(([from, to]) => `${from} → ${to}`)).toEqual([]);
});

test.each(packages)('every folder of %s that imports or is imported has its place', (name) => {
  const places = new Set(importsOf(name).flat().map(placeOf));
  expect([...places].filter((place) => !orders.get(name)?.includes(place))).toEqual([]);
});

/** The imports of a package that leave a file's folder. */
function importsOf(name: string): readonly (readonly [from: string, to: string])[] {
  const folder = join(root, 'packages', name, 'src');
  const files = globSync('**/*.ts', { cwd: folder }).filter(
    (file) => !/\.test(-d)?\.ts$|^(index|adapter)\.ts$/.test(file),
  );
  return files.flatMap((from) =>
    [...readFileSync(join(folder, from), 'utf8').matchAll(/(?:from|import\(?) ?'(\.[^']+)\.js'/g)]
      .map(([, path = '']) => [from, `${join(dirname(from), path)}.ts`] as const)
      .filter(([, to]) => placeOf(from) !== placeOf(to)),
  );
}

/** The folder of a file, or the file itself if it is beside the folders. */
function placeOf(file: string): string {
  return file.split('/')[0]!.replace(/\.ts$/, '');
}

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of the workspace. */
export const root = fileURLToPath(new URL('..', import.meta.url));

const foldersIn = (parent) =>
  readdirSync(join(root, parent), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => `${parent}/${entry.name}`);
/** The folders of the workspace's members, relative to its root. */
export const members = ['examples', ...foldersIn('packages'), ...foldersIn('apps')];

/** The package manager with its exact version, such as `pnpm@12.0.0`. */
export const packageManager = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).packageManager;

/** The path of a tool that the workspace depends on. */
export function tool(name) {
  return join(root, 'node_modules/.bin', name);
}

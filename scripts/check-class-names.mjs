import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { root } from './workspace.mjs';

// Checks the built packages: every exported class has the name by which it is exported, because errors show it.
let count = 0;
const faults = [];
for (const name of ['core', 'drizzle-adapter', 'events', 'testing']) {
  const folder = join(root, 'packages', name);
  const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  for (const { default: file } of Object.values(manifest.exports)) {
    if (file === undefined) continue;
    const classes = Object.entries(await import(pathToFileURL(join(folder, file)))).filter(isClass);
    count += classes.length;
    for (const [exported, { name: own }] of classes)
      if (own !== exported) faults.push(`${join('packages', name, file)}: ${exported} has the name ${own}`);
  }
}
if (count === 0) faults.push('The built packages export no classes');
for (const fault of faults) console.error(fault);
if (faults.length > 0) process.exitCode = 1;

function isClass([, value]) {
  return typeof value === 'function' && /^class\b/.test(Function.prototype.toString.call(value));
}

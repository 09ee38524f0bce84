import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

import { root } from './workspace.mjs';

// Checks the documents against the workspace: links lead to files that exist, and code that names its source
// (`<!-- source: path -->` above the block) stands in that file, line by line, whatever its indentation.
const block = /<!-- source: (\S+) -->\s*```ts\n(.*?)\n\s*```/gs;
const link = /\]\((?!https?:|#|mailto:)([^)#\s]+)/g;

const documents = globSync(['*.md', 'docs/**/*.md', '{packages,apps}/*/*.md'], { cwd: root });
const faults = documents.flatMap((document) => {
  const text = readFileSync(join(root, document), 'utf8');
  return [...brokenLinks(document, text), ...staleBlocks(text)].map((fault) => `${document}: ${fault}`);
});
for (const fault of faults) console.error(fault);
if (faults.length > 0) process.exitCode = 1;

function brokenLinks(document, text) {
  const from = dirname(join(root, document));
  return [...text.matchAll(link)]
    .map(([, target]) => target)
    .filter((target) => !existsSync(resolve(from, target)))
    .map((target) => `links to ${target}, which does not exist`);
}

function staleBlocks(text) {
  return [...text.matchAll(block)]
    .filter(
      ([, source, code]) =>
        !existsSync(join(root, source)) || !codeOf(join(root, source)).includes(flat(code)),
    )
    .map(([, source]) => `shows code that does not stand in ${source}`);
}

function codeOf(path) {
  return flat(readFileSync(path, 'utf8'));
}

function flat(code) {
  return code
    .split('\n')
    .map((line) => line.trim())
    .join('\n');
}

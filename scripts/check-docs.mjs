import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { root } from './workspace.mjs';

// Checks the documents against the workspace: links must lead to existing files, and TypeScript must name its source (`<!-- source:
// path -->` above the block). A source that is named must contain the block line by line, ignoring indentation.
const block = /(?:<!-- source: (\S+) -->\s*)?```(\w+)\n(.*?)\n\s*```/gs;
const link = /\]\((?!https?:|#|mailto:)([^)#\s]+)/g;

const errors = globSync(['*.md', 'docs/**/*.md', '{packages,apps}/*/*.md'], { cwd: root }).flatMap(
  (document) => {
    const text = read(document);
    const broken = [...text.matchAll(link)]
      .filter(([, target]) => !existsSync(join(root, dirname(document), target)))
      .map(([, target]) => `links to ${target}, which does not exist`);
    const stale = [...text.matchAll(block)]
      .filter(([, source, language]) => source !== undefined || language === 'ts')
      .filter(([, source, , code]) => !flat(source === undefined ? '' : read(source)).includes(flat(code)))
      .map(([, source]) => `shows code that is not in ${source ?? 'a source that it names'}`);
    return [...broken, ...stale].map((error) => `${document}: ${error}`);
  },
);
for (const error of errors) console.error(error);
if (errors.length > 0) process.exitCode = 1;

function read(path) {
  return existsSync(join(root, path)) ? readFileSync(join(root, path), 'utf8') : '';
}

function flat(code) {
  return code.replaceAll(/^[ \t]+|[ \t]+$/gm, '');
}

import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

import { expect, test } from 'vitest';

// Links to a heading of a page, beside `scripts/check-docs.mjs`, which checks that the page exists. Anchors are made as on GitHub.
const root = join(import.meta.dirname, '..');
const pages = globSync(['*.md', 'docs/**/*.md', '{packages,apps}/*/*.md'], { cwd: root });
const link = /\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)/g;
const headings = new Map(pages.map((page) => [page, anchorsOf(readFileSync(join(root, page), 'utf8'))]));

test('each link to a heading of a page leads to a heading that exists', () => {
  const broken = pages.flatMap((page) =>
    [...readFileSync(join(root, page), 'utf8').matchAll(link)]
      .filter(([, to = '', anchor = '']) => !leadsTo(page, to, anchor))
      .map(([text]) => `${page}: ${text}`),
  );
  expect(broken).toEqual([]);
});

function leadsTo(page: string, to: string, anchor: string): boolean {
  const target = to === '' ? page : relative(root, join(root, dirname(page), to));
  return !target.endsWith('.md') || headings.get(target)?.has(anchor) === true;
}

function anchorsOf(text: string): ReadonlySet<string> {
  const prose = text.replaceAll(/^ *```.*?^ *```$/gms, '');
  return new Set([...prose.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) => anchorOf(heading)));
}

function anchorOf(heading: string): string {
  const words = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
  return words.replaceAll(/[^\p{L}\p{N}\s_-]/gu, '').replaceAll(/\s/g, '-');
}

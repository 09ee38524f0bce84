import type { Options } from 'tsup';

const selfNamed = /^var (\w+) = class _\1(?!\w)/gm;

/**
 * Keeps the names of classes, which errors show: esbuild makes `var Id = class _Id` of a class that names itself.
 *
 * Its option `keepNames` would have a price: it defines the names of inner functions anew whenever those are made. A space
 * takes the place of the underscore, so that source maps stay exact.
 */
const classNames: NonNullable<Options['plugins']>[number] = {
  name: 'class-names',
  renderChunk: (code) => {
    const names = Array.from(code.matchAll(selfNamed), ([, name]) => name);
    if (names.length === 0) return undefined;
    return { code: code.replace(new RegExp(`(?<![\\w$.#])_(?=(?:${names.join('|')})(?![\\w$]))`, 'g'), ' ') };
  },
};

/** How the packages are built. Declarations come from tsc: TypeScript 7 has no JavaScript API that tsup could call. */
export const packageBuild = {
  format: 'esm',
  target: 'es2022',
  platform: 'node',
  sourcemap: true,
  plugins: [classNames],
} satisfies Options;

import { defineConfig } from 'tsup';

const service = {
  format: 'esm',
  target: 'es2022',
  platform: 'node',
  sourcemap: true,
  // Names of classes are the names of actions and events in the log.
  keepNames: true,
} as const;

/** What makes up most of the modules. */
const bundled = [
  /^drizzle-orm/,
  /^@framework\/(core|drizzle-adapter|events)(\/adapter)?$/,
  /^zod/,
  /^@?hono/,
  /^big.js/,
  /^yaml/,
];

/**
 * Keeps the names of classes, but not those of arrow functions and the like: esbuild defines them anew whenever an inner
 * function is made, which took a twentieth of a request's processor time.
 */
const cheapNames = {
  name: 'cheap-names',
  renderChunk: (code: string) => {
    const helper = 'var __name = (target, value) => __defProp(';
    if (!code.includes(helper)) throw new Error('esbuild has changed how it keeps names: see cheapNames');
    return {
      code: code.replace(
        helper,
        'var __name = (target, value) => target.prototype === undefined ? target : __defProp(',
      ),
    };
  },
};

export default defineConfig([
  // In one file the process starts several times faster and needs half of the memory: Node looks for a manifest for each
  // of Drizzle's many modules.
  {
    ...service,
    entry: ['src/main.ts'],
    plugins: [cheapNames],
    noExternal: bundled,
    // The driver that comes with them asks for Node's own modules by require.
    banner: {
      js: "import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url);",
    },
  },
  // Who embeds the service has the framework's packages, too, and there must be one copy of them.
  { ...service, entry: ['src/index.ts'] },
]);

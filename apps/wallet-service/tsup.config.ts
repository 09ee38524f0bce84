import { defineConfig } from 'tsup';

const service = {
  format: 'esm',
  target: 'es2022',
  platform: 'node',
  sourcemap: true,
  // Names of classes are the names of actions and events in the log.
  keepNames: true,
} as const;

/** These make up most of the modules. */
const bundled = [
  /^drizzle-orm/,
  /^@framework\/(cli|core|drizzle-adapter|events|http|logical-replication|operator|postgres-admin|relay|service|telemetry)(\/(adapter|asyncapi|config|hono|http|log|operation|security|server))?$/,
  /^zod/,
  /^@?hono/,
  /^big.js/,
  /^ipaddr.js/,
  /^pg$/,
  /^rate-limiter-flexible/,
  /^yaml/,
];

/**
 * Keeps the names of classes, but not those of arrow functions and the like: esbuild defines the names again whenever an inner
 * function is created, which took a twentieth of a request's processor time.
 */
const cheapNames = {
  name: 'cheap-names',
  renderChunk: (code: string) => {
    const helper = 'var __name = (target, value) => __defProp(';
    if (/\b__name = /.test(code) && !code.includes(helper))
      throw new Error('esbuild has changed how it keeps names: see cheapNames');
    return {
      code: code.replace(
        helper,
        'var __name = (target, value) => target.prototype === undefined ? target : __defProp(',
      ),
    };
  },
};

export default defineConfig([
  // Bundled into one file, the process starts several times faster and needs half the memory: otherwise Node looks for a manifest
  // for each of Drizzle's many modules.
  {
    ...service,
    entry: ['src/main.ts'],
    plugins: [cheapNames],
    noExternal: bundled,
    // The driver in the bundle loads Node's own modules with require.
    banner: {
      js: "import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url);",
    },
  },
  // Programs that embed the service have the framework's packages, too, and there must be only one copy of them.
  { ...service, entry: ['src/index.ts', 'src/operator-module.ts'] },
]);

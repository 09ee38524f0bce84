/** Rules of the project that the linter does not have. */
export default {
  meta: { name: 'framework' },
  rules: {
    /** `new Date()` reads the machine's clock. */
    'time-from-clock': {
      create: (context) => ({
        NewExpression(node) {
          if (node.callee.name === 'Date' && node.arguments.length === 0)
            context.report({ node, message: 'time comes from a Clock, so that a simulation can decide it' });
        },
      }),
    },
  },
};

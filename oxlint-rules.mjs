/** Rules of the project that the linter does not bring. */
export default {
  meta: { name: 'framework' },
  rules: {
    /** `new Date()` reads the time of the machine. */
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
